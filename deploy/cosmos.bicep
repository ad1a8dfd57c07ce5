metadata description = 'Database and containers of sharedmem in an existing Cosmos DB account, and the right to use them.'

@description('An account of the NoSQL API.')
param accountName string

@description('As the setting cosmos_database says.')
param databaseName string = 'sharedmem'

@description('As the setting cosmos_container says.')
param containerName string = 'records'

@description('As the setting cosmos_memories says.')
param memoriesName string = 'memories'

@description('As the setting cosmos_graphs says.')
param graphsName string = 'graphs'

@description('Numbers of a vector of the embedder in use (wordllama: 256); it cannot be changed later.')
param memoryDimensions int = 256

@description('As the setting cosmos_many_memories says: diskANN for more than 100,000 memories.')
@allowed(['quantizedFlat', 'diskANN'])
param memoryIndex string = 'quantizedFlat'

@description('Most request units a second, scaled automatically from a tenth of it; 0 for a serverless account.')
param maxThroughput int = 0

@description('Object id of the identity that runs sharedmem; empty when it uses the account key.')
param principalId string = ''

// "Cosmos DB Built-in Data Contributor", in every account.
var dataContributor = '00000000-0000-0000-0000-000000000002'

resource account 'Microsoft.DocumentDB/databaseAccounts@2024-11-15' existing = {
  name: accountName
}

resource database 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases@2024-11-15' = {
  parent: account
  name: databaseName
  properties: {
    resource: {
      id: databaseName
    }
  }
}

resource container 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2024-11-15' = {
  parent: database
  name: containerName
  properties: {
    resource: {
      id: containerName
      // It cannot be changed later.
      partitionKey: {
        kind: 'MultiHash'
        version: 2
        paths: [
          '/namespace'
          '/scope'
          '/key'
        ]
      }
      // Documents live for ever unless they say otherwise.
      defaultTtl: -1
      indexingPolicy: {
        indexingMode: 'consistent'
        automatic: true
        includedPaths: [
          { path: '/namespace/?' }
          { path: '/scope/?' }
          { path: '/key/?' }
          { path: '/element/?' }
          { path: '/type/?' }
          { path: '/stamp/?' }
          { path: '/deleted/?' }
          { path: '/body/*' }
        ]
        excludedPaths: [
          { path: '/*' }
          { path: '/"_etag"/?' }
        ]
        compositeIndexes: [
          [
            { path: '/namespace', order: 'ascending' }
            { path: '/key', order: 'ascending' }
            { path: '/element', order: 'ascending' }
          ]
          [
            { path: '/namespace', order: 'descending' }
            { path: '/stamp', order: 'descending' }
          ]
          [
            { path: '/namespace', order: 'descending' }
            { path: '/type', order: 'descending' }
            { path: '/stamp', order: 'descending' }
          ]
        ]
      }
    }
    options: maxThroughput > 0 ? { autoscaleSettings: { maxThroughput: maxThroughput } } : {}
  }
}

// Semantic memory: the account needs the capability EnableNoSQLVectorSearch.
resource memories 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2025-04-15' = {
  parent: database
  name: memoriesName
  properties: {
    resource: {
      id: memoriesName
      // Neither this nor the two policies can be changed later.
      partitionKey: {
        kind: 'MultiHash'
        version: 2
        paths: [
          '/tenant_id'
          '/thread_id'
        ]
      }
      defaultTtl: -1
      vectorEmbeddingPolicy: {
        vectorEmbeddings: [
          {
            path: '/embedding'
            dataType: 'float32'
            distanceFunction: 'cosine'
            dimensions: memoryDimensions
          }
        ]
      }
      fullTextPolicy: {
        defaultLanguage: 'en-US'
        fullTextPaths: [
          { path: '/content', language: 'en-US' }
          { path: '/memory', language: 'en-US' }
        ]
      }
      indexingPolicy: {
        indexingMode: 'consistent'
        automatic: true
        includedPaths: [
          { path: '/*' }
        ]
        excludedPaths: [
          { path: '/embedding/*' }
          { path: '/exact/?' }
          { path: '/"_etag"/?' }
        ]
        compositeIndexes: [
          [
            { path: '/tenant_id', order: 'ascending' }
            { path: '/key', order: 'ascending' }
            { path: '/element', order: 'ascending' }
          ]
          [
            { path: '/tenant_id', order: 'descending' }
            { path: '/stamp', order: 'descending' }
          ]
          [
            { path: '/tenant_id', order: 'descending' }
            { path: '/type', order: 'descending' }
            { path: '/stamp', order: 'descending' }
          ]
        ]
        vectorIndexes: [
          { path: '/embedding', type: memoryIndex }
        ]
        fullTextIndexes: [
          { path: '/content' }
          { path: '/memory' }
        ]
      }
    }
    options: maxThroughput > 0 ? { autoscaleSettings: { maxThroughput: maxThroughput } } : {}
  }
}

// Knowledge graphs: a logical partition a group.
resource graphs 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2025-04-15' = {
  parent: database
  name: graphsName
  properties: {
    resource: {
      id: graphsName
      // Neither this nor the two policies can be changed later.
      partitionKey: {
        kind: 'MultiHash'
        version: 2
        paths: [
          '/namespace'
          '/group_id'
        ]
      }
      defaultTtl: -1
      vectorEmbeddingPolicy: {
        vectorEmbeddings: [
          {
            path: '/embedding'
            dataType: 'float32'
            distanceFunction: 'cosine'
            dimensions: memoryDimensions
          }
        ]
      }
      fullTextPolicy: {
        defaultLanguage: 'en-US'
        fullTextPaths: [
          { path: '/text', language: 'en-US' }
        ]
      }
      indexingPolicy: {
        indexingMode: 'consistent'
        automatic: true
        includedPaths: [
          { path: '/*' }
        ]
        excludedPaths: [
          { path: '/embedding/*' }
          { path: '/exact/?' }
          { path: '/"_etag"/?' }
        ]
        compositeIndexes: [
          [
            { path: '/namespace', order: 'ascending' }
            { path: '/key', order: 'ascending' }
            { path: '/element', order: 'ascending' }
          ]
          [
            { path: '/namespace', order: 'descending' }
            { path: '/stamp', order: 'descending' }
          ]
          [
            { path: '/namespace', order: 'descending' }
            { path: '/type', order: 'descending' }
            { path: '/stamp', order: 'descending' }
          ]
        ]
        vectorIndexes: [
          { path: '/embedding', type: memoryIndex }
        ]
        fullTextIndexes: [
          { path: '/text' }
        ]
      }
    }
    options: maxThroughput > 0 ? { autoscaleSettings: { maxThroughput: maxThroughput } } : {}
  }
}

resource right 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2024-11-15' = if (!empty(principalId)) {
  parent: account
  name: guid(account.id, databaseName, principalId, dataContributor)
  properties: {
    roleDefinitionId: '${account.id}/sqlRoleDefinitions/${dataContributor}'
    principalId: principalId
    scope: '${account.id}/dbs/${databaseName}'
  }
  dependsOn: [
    database
  ]
}

output durableUrl string = replace(account.properties.documentEndpoint, 'https://', 'cosmos://')
